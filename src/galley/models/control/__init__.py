"""Networks of agents, and the decision function that is saved, reloaded and exported."""

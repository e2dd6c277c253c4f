"""What the loop steps: rows through an engine, or an agent in a world."""

"""`python -m galley`."""

import sys

from galley.cli.main import main

sys.exit(main())

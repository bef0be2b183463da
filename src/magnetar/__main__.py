"""``python -m magnetar``."""

import sys

from magnetar.cli.magnetar import main

sys.exit(main())

"""python -m lvp: `lvp.cli`."""

import sys

from lvp.cli import main

sys.exit(main())

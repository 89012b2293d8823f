"""A stand-in for nsys's recipe framework: its interface as documented, none of its code.

``STANDIN_RELEASE`` says which release it behaves like: 2023.4 (the default) or 2025.1.
"""

from __future__ import annotations

import os

OLD = os.environ.get("STANDIN_RELEASE", "2023.4") == "2023.4"

"""Every message and every struct in it, one class each; made from the tables when imported.

`messages.pyi` says what they look like; `python -m klamm.wire.stubs` prints it.
"""

from klamm.wire.classes import make_classes

globals().update(make_classes())

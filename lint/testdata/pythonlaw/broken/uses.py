"""Each way in which a name leads nowhere."""
from . import gone
from .has import LOST, THERE
from . import has


print(has.gone, has.THERE, gone, LOST, THERE)


def function(value, whole: bool):
    has = value
    return absent + has

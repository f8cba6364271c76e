"""What a replica does under load, in closed form: step times and serving times from fitted constants."""

from tonnage.inference.estimate.case import Figures, Load, Replica, figures
from tonnage.inference.estimate.constants import Constants, constants

__all__ = ["Constants", "Figures", "Load", "Replica", "constants", "figures"]

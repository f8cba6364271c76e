from tonnage.inference.estimate.case import Figures, Load, Replica, figures
from tonnage.inference.estimate.constants import Constants, constants

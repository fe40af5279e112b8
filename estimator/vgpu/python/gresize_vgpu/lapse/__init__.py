"""Time-lapse: the program goes on to what comes later, and turns that add nothing are left out."""

"""Each kernel that plain code calls, again in plain Python; and builders only tests need."""

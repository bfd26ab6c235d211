"""`penstock bridge`: the options of all bridges, and how one runs."""

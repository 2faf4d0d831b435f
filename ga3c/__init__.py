"""GA3C: asynchronous advantage actor-critic with one model on one device (Babaeizadeh et al., 2017)."""

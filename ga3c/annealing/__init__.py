"""Dynamic adjustment of N_A, N_P and N_T while a run trains (paper section 4.3); begin with controller.py."""

"""What several packages use: log space, small factorisations, Gaussians with missing cells."""

"""What several packages share: log space, small factorisations, Gaussians with missing cells."""

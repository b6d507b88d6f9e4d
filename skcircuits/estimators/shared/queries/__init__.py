"""What densities answer under conditions."""

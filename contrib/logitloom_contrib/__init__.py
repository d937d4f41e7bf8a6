"""What sits between logitloom and the engines and models of others."""

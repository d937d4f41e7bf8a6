"""Display: tables in notebooks, and bars of progress."""

"""What people look at: pictures, tables, plots."""

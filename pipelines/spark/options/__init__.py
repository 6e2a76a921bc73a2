"""What a user may ask the Spark data source for, checked; all the names there are."""

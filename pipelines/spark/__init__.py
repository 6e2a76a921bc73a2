"""The Spark bridge: a Python Data Source over the Ray-native clients."""

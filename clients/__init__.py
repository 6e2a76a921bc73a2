"""The Ray-native clients. They meet the broker only on the wire."""

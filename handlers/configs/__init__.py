"""APIs about settings: Describe-, Alter-, IncrementalAlterConfigs, ListConfigResources."""

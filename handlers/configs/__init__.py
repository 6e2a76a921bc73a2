"""APIs about settings: Describe-, Alter-, IncrementalAlterConfigs, ListConfigResources.

describe_configs, config_description       settings of topics and brokers; how they are shown
alter_configs, incremental_alter_configs   all settings at once; single ones
list_config_resources                      the resources that can have settings
config_rules                               the controller's ConfigRules: which settings may be what
broker_loggers                             levels of loggers, described and set
config_document                            docs/configs.md, made from the tables of settings
"""

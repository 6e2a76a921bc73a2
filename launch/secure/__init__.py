"""Security of a cluster without a page of settings: `bradbury up --secure`.

certificate_authority   signs the certificates of the nodes; its key stays where `up` was run
node_certificate        a node's key, made on the node, which it never leaves
private_file            files that their user alone can read
secure_cluster          the settings, the admin user, the client file
listener_checks         what is refused before a start: open listeners, secrets in settings
"""

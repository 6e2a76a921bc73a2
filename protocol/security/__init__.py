"""SASL and ACLs, as far as broker and clients share them: the same formulas and messages on both
sides. Pure.

scram              RFC 5802: keys, signatures, proofs; how names are escaped
scram_messages     the four messages of SCRAM
scram_client       the client's side of SCRAM
sasl_client        what a client says to authenticate: PLAIN, and SCRAM by way of scram_client
acl_binding        ACLs, and filters of them
gssapi             what is said where Kerberos is asked for
pem_text           PEM in one line, as Kafka takes it, in the lines that OpenSSL wants
jaas               Kafka's sasl.jaas.config
secret_reference   ${file:...}, ${dir:...} and ${env:...}: a secret that stands elsewhere
"""

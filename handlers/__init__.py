"""Floor 3: one Kafka API per file: request + ports -> response.

server/                  from a frame to a response
ports/                   what a handler reaches
authorization/           the rights that a client needs, API by API
records/, topics/        the APIs about records; about topics
groups/, transactions/   about consumer groups; about transactions
configs/, cluster/       about settings; about nodes, voters, reassignments, log directories
security/, quotas/       about SASL, ACLs, delegation tokens; about quotas of clients
"""

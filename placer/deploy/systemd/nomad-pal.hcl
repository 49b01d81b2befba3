# /etc/nomad-pal.d/nomad-pal.hcl
# docs/reference/configuration.md has every key and its default.

nomad {
  address = "http://127.0.0.1:4646"

  # If Nomad has ACLs: a token with the policy nomad-pal.policy.hcl. Or set NOMAD_TOKEN in nomad-pal.env.
  # token_file = "/etc/nomad-pal.d/token"

  # If Nomad has TLS. Use a certificate for a Nomad client (nomad tls cert create -client).
  # ca_cert     = "/etc/nomad.d/tls/nomad-agent-ca.pem"
  # client_cert = "/etc/nomad.d/tls/global-client-nomad.pem"
  # client_key  = "/etc/nomad.d/tls/global-client-nomad-key.pem"

  # The RPC addresses of Nomad's servers. The agent needs them for dispatched and periodic jobs.
  # rpc_address = "10.0.0.1:4647,10.0.0.2:4647,10.0.0.3:4647"
}

http {
  bind_address = "127.0.0.1"
  bind_port    = 8090

  # If callers reach the agent by another name than this machine's.
  # allowed_hosts = ["nomad-pal.service.consul"]
}

# Several agents may run. One of them is active.
high_availability {
  enabled = true
}

# Records what ran, for nomad-pal history. Agents on several machines need a
# shared database, "postgres://…"; with a file, the second agent refuses to start.
history {
  database = "/var/lib/nomad-pal/history.db"
}

# The application class of jobs that name none.
# default_class = "B"

# Locality penalties. These are the two values of the PAL paper; measure your own fabric.
# locality {
#   node    = 1
#   cluster = 1.7
# }

# app "llama-7b" {
#   class = "A"
# }

# Namespace "research" has a quota of 32 GPUs, and may borrow 16 more while they are idle.
# tenant "research" {
#   quota           = 32
#   borrowing_limit = 16
# }

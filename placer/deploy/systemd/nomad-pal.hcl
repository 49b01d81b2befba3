# /etc/nomad-pal.d/nomad-pal.hcl
# docs/reference/configuration.md has every key and its default.

nomad {
  address = "http://127.0.0.1:4646"

  # With access control; see nomad-pal.policy.hcl. Or NOMAD_TOKEN in nomad-pal.env.
  # token_file = "/etc/nomad-pal.d/token"

  # With TLS. The certificate is one of a Nomad client (nomad tls cert create -client).
  # ca_cert     = "/etc/nomad.d/tls/nomad-agent-ca.pem"
  # client_cert = "/etc/nomad.d/tls/global-client-nomad.pem"
  # client_key  = "/etc/nomad.d/tls/global-client-nomad-key.pem"

  # For dispatched and periodic jobs: the servers' RPC port.
  # rpc_address = "10.0.0.1:4647,10.0.0.2:4647,10.0.0.3:4647"
}

http {
  bind_address = "127.0.0.1"
  bind_port    = 8090

  # Where callers use another name than this machine's.
  # allowed_hosts = ["nomad-pal.service.consul"]
}

# Several agents, active one.
high_availability {
  enabled = true
}

# What ran, for nomad-pal history and usage. Several agents: "postgres://…"
history {
  database = "/var/lib/nomad-pal/history.db"
}

# Jobs that say nothing of their class.
# default_class = "B"

# Measured on your own fabric; these are PAL's two tiers.
# locality {
#   node    = 1
#   cluster = 1.7
# }

# app "llama-7b" {
#   class = "A"
# }

# Namespace "research" has 32 GPUs of its own, and may borrow 16 while they are idle.
# tenant "research" {
#   quota           = 32
#   borrowing_limit = 16
# }

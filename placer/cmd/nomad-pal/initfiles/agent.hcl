# The configuration of nomad-pal agent. docs/reference/configuration.md has every key.

nomad {
  address = <<hcl .Address>>
<<- if .Region >>
  region  = <<hcl .Region>>
<<- end >>
<<- if ne .Storage "default" >>

  # The namespace of the agent's variables; commands need -pal-namespace, too.
  namespace = <<hcl .Storage>>
<<- end >>
<<- if .ACL >>

  # acl.sh writes it.
  token_file = <<hcl .TokenFile>>
<<- end >>
<<- if .TLS >>

  # Files that the agent's user can read.
<<- if .CACert >>
  ca_cert     = <<hcl .CACert>>
<<- end >>
<<- if .CAPath >>
  ca_path     = <<hcl .CAPath>>
<<- end >>
<<- if .ClientCert >>
  client_cert = <<hcl .ClientCert>>
  client_key  = <<hcl .ClientKey>>
<<- end >>
<<- if .ServerName >>
  tls_server_name = <<hcl .ServerName>>
<<- end >>
<<- if .SkipVerify >>
  skip_verify = true # as you connect now: not for production
<<- end >>
<<- end >>
<<- if .Servers >>

  # The servers' RPC ports, for dispatched and periodic jobs.
<<- if .TLS >> With TLS it takes a client
  # certificate of the name client.<region>.nomad.
  # rpc_address = <<hcl .Servers>>
<<- else >>
  rpc_address = <<hcl .Servers>>
<<- end >>
<<- end >>
}

# API and page are on 127.0.0.1:8090. For others than this machine:
# http {
#   bind_address = "0.0.0.0"
#   advertise    = "https://pal.example.com:8090"
#   cert_file    = "/etc/nomad-pal.d/api.pem"
#   key_file     = "/etc/nomad-pal.d/api-key.pem"
# }

# Several agents may run: one is at work.
high_availability {
  enabled = true
}

<<if .RackMeta ->>
# <<.Racks>> by this meta key.
rack_meta = <<hcl .RackMeta>>
<<- else ->>
# No node says in which rack it is. If clients get meta { rack = "…" }, nodes of one rack
# count as closer.
# rack_meta = "rack"
<<- end >>

# How much longer a gang runs that is spread over nodes. PAL's figure: measure your own.
locality {
  node    = 1
<<- if .RackMeta >>
  # rack  = 1.2
<<- end >>
  cluster = 1.7
}
<<- if gt (len .Namespaces) 1 >>

# Shares of namespaces, if they should be held to any: docs/operators/configure.md, Tenants.
<<- range .Namespaces >>
# tenant <<hcl .>> { quota = <<$.Quota>> }
<<- end >>
<<- end >>

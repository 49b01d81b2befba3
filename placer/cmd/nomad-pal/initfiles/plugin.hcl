# For the configuration of Nomad's client (/etc/nomad.d) on each node with GPUs, with the
# binary nomad-device-pal in the client's plugin_dir. Then nomad-device-pal doctor on the
# node says what is missing. docs/reference/plugin-configuration.md has every key.
<<- if .OtherPlugin >>
#
# <<.OtherPlugin>> GPUs come from another device plugin today:
# docs/operators/upgrade-from-nomad-device-nvidia.md says how to change over.
<<- end >>

plugin "nomad-device-pal" {
  config {
    # Idle GPUs are measured at full power, for about two minutes each, within an hour
    # after the start and then once a week. "manual": only when you say so.
    measure {
      mode = "idle"
    }

    # The scores that the agent works out are shown as attributes of the GPUs.
    profile_from_nomad {
<<- if .TLS >>
      address = "https://127.0.0.1:4646" # this client's own API
<<- if .CACert >>
      ca_cert     = <<hcl .CACert>>
<<- end >>
<<- if .ClientCert >>
      client_cert = <<hcl .ClientCert>>
      client_key  = <<hcl .ClientKey>>
<<- end >>
<<- end >>
<<- if ne .Storage "default" >>
      namespace = <<hcl .Storage>>
<<- end >>
<<- if .ACL >>
      token_file = "/etc/nomad.d/nomad-device-pal.token" # node.token of acl.sh
<<- end >>
    }
  }
}

# For the configuration of a Nomad client, for example /etc/nomad.d/nomad-device-pal.hcl.
# docs/reference/plugin-configuration.md has all keys.

# If you have a plugin_dir already, put a link to /usr/lib/nomad/plugins/nomad-device-pal into it
# instead. Remove the link before the package: Nomad does not start with a dangling link.
plugin_dir = "/usr/lib/nomad/plugins"

plugin "nomad-device-pal" {
  config {}
}

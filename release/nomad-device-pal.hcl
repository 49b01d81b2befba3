# For the configuration of a Nomad client, for example /etc/nomad.d/nomad-device-pal.hcl.
# docs/reference/plugin-configuration.md has all keys.

# If you have a folder with plugins already (plugin_dir, by default <data_dir>/plugins), put a link to
# /usr/lib/nomad/plugins/nomad-device-pal into it instead, because plugin_dir hides the default folder.
# Remove the link before the package: Nomad does not start with a dangling link.
plugin_dir = "/usr/lib/nomad/plugins"

plugin "nomad-device-pal" {
  config {}
}

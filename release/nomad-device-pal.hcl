# For the configuration of a Nomad client, for example /etc/nomad.d/nomad-device-pal.hcl.
# docs/reference/plugin-configuration.md has all keys.

# Or a link to the plugin in the plugin_dir that you have. Remove the link before
# the package: Nomad does not start with one that leads nowhere.
plugin_dir = "/usr/lib/nomad/plugins"

plugin "nomad-device-pal" {
  config {}
}

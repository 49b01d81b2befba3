# For clients whose device plugin reads the cluster's profile from Nomad
# (profile_from_nomad): put a token of this policy into the plugin's config.

namespace "default" {
  variables {
    path "nomad-pal/profile/*" {
      capabilities = ["list", "read"]
    }
  }
}

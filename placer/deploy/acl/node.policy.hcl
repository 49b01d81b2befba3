# For clients with the device plugin: put a token of this policy into the file that the plugin's
# config names (nomad { token_file }).
#
# With it the plugin learns which allocations of its node have GPUs, and measures the others. It
# must see the jobs of every namespace: of others Nomad would not tell. It also reads the cluster's
# profile (profile_from_nomad).

agent {
  policy = "read"
}

node {
  policy = "read"
}

namespace "*" {
  capabilities = ["read-job"]
}

namespace "default" {
  capabilities = ["read-job"]

  variables {
    path "nomad-pal/profile/*" {
      capabilities = ["list", "read"]
    }
  }
}

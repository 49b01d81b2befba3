# For clients with the device plugin. Put a token with this policy into the file that the plugin's
# configuration names (nomad { token_file }).
#
# With the token, the plugin asks which GPUs of its node the allocations have, and measures the others.
# It must be able to read the jobs of all namespaces: Nomad hides the allocations of the rest. It also
# reads the cluster's profile (profile_from_nomad).

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

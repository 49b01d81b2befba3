# For clients with the device plugin. Put a token with this policy into the file that the plugin's
# configuration names (nomad { token_file }).
#
# With the token, the plugin asks Nomad which GPUs of its node are held by allocations, and measures the
# others. The token must be able to read the jobs of all namespaces, because Nomad hides allocations of
# jobs that it may not read. The plugin also reads the cluster's profile (profile_from_nomad).

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

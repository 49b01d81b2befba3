job [[ var "job_name" . | quote ]] {
  [[- if var "region" . ]]
  region = [[ var "region" . | quote ]]
  [[- end ]]
  [[- if var "namespace" . ]]
  namespace = [[ var "namespace" . | quote ]]
  [[- end ]]
  [[- if var "node_pool" . ]]
  node_pool = [[ var "node_pool" . | quote ]]
  [[- end ]]
  [[- if var "datacenters" . ]]
  datacenters = [[ var "datacenters" . | toJson ]]
  [[- end ]]
  type     = "service"
  priority = 90 # high, because gated jobs wait while no agent runs

  group "agent" {
    count = [[ var "count" . ]]

    network {
      port "http" {}
    }

    service {
      name     = "nomad-pal"
      port     = "http"
      provider = "nomad"

      check {
        type     = "http"
        path     = "/v1/health"
        interval = "10s"
        timeout  = "2s"
      }
    }

    # If the node is lost, start the agent on another node soon.
    reschedule {
      delay          = "5s"
      delay_function = "exponential"
      max_delay      = "1m"
      unlimited      = true
    }

    task "agent" {
      driver = [[ var "driver" . | quote ]]

      config {
        [[- if var "image" . ]]
        image        = [[ var "image" . | quote ]]
        network_mode = "host"
        [[- else ]]
        command = [[ var "command" . | quote ]]
        [[- end ]]
        args = ["agent", "-config", "${NOMAD_TASK_DIR}/agent.hcl"]
      }

      # Nomad puts a token of the job's identity into NOMAD_TOKEN, and renews it.
      identity {
        env         = true
        change_mode = "restart"
      }

      env {
        NOMAD_ADDR = "unix://${NOMAD_SECRETS_DIR}/api.sock"
      }

      template {
        destination = "local/agent.hcl"
        change_mode = "restart"
        data        = <<-EOT
          http {
            bind_address = "{{ env "NOMAD_IP_http" }}"
            bind_port    = {{ env "NOMAD_PORT_http" }}
          }
          high_availability {
            enabled = true
          }
[[ var "config" . ]]
        EOT
      }

      resources {
        cpu    = [[ var "cpu" . ]]
        memory = [[ var "memory" . ]]
      }
    }
  }
}

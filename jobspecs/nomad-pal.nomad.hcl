# nomad-pal as a Nomad job with two agents. One agent is active, the other stands by. Both call
# Nomad through the Task API with the job's workload identity, so you configure no address, token
# or certificate. If Nomad has ACLs, first bind the agent's policy to the job:
#
#   nomad acl policy apply -namespace default -job nomad-pal nomad-pal placer/deploy/acl/nomad-pal.policy.hcl
#   nomad job run jobspecs/nomad-pal.nomad.hcl
#
# With raw_exec, or another driver that runs a binary from the node:
#
#   nomad job run -var driver=raw_exec -var command=/usr/local/bin/nomad-pal jobspecs/nomad-pal.nomad.hcl

variable "driver" {
  type        = string
  default     = "exec"
  description = "exec, raw_exec or another driver with command and args."
}

variable "command" {
  type        = string
  default     = "/usr/bin/nomad-pal"
  description = "Path of the binary on the nodes."
}

variable "count" {
  type        = number
  default     = 2
  description = "Number of agents. One places, the others stand by."
}

variable "config" {
  type        = string
  default     = ""
  description = "Additional configuration of the agent. docs/reference/configuration.md lists the keys."
}

job "nomad-pal" {
  type     = "service"
  priority = 90 # high, because gated jobs wait while no agent runs

  group "agent" {
    count = var.count

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
      driver = var.driver

      config {
        command = var.command
        args    = ["agent", "-config", "${NOMAD_TASK_DIR}/agent.hcl"]
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
          ${var.config}
        EOT
      }

      resources {
        cpu    = 200
        memory = 512 # enough for 1,000 nodes; 1 GB for 10,000
      }
    }
  }
}

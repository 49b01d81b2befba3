variable "job_name" {
  description = "Name of the job. The agent's ACL policy is bound to it."
  type        = string
  default     = "nomad-pal"
}

variable "region" {
  description = "Region of the job. Empty: the region of the Nomad agent that gets the job."
  type        = string
  default     = ""
}

variable "namespace" {
  description = "Namespace of the job. Empty: the caller's namespace (NOMAD_NAMESPACE)."
  type        = string
  default     = ""
}

variable "datacenters" {
  description = "Datacenters whose nodes may run the agent. Empty: all."
  type        = list(string)
  default     = []
}

variable "node_pool" {
  description = "Node pool whose nodes may run the agent. Empty: the namespace's default."
  type        = string
  default     = ""
}

variable "count" {
  description = "Number of agents. One places, the others stand by."
  type        = number
  default     = 2
}

variable "driver" {
  description = "exec, raw_exec or another driver with command and args; docker and podman need the variable image."
  type        = string
  default     = "exec"
}

variable "command" {
  description = "Path of the binary on the nodes. Ignored if image is set."
  type        = string
  default     = "/usr/bin/nomad-pal"
}

variable "image" {
  description = "Container image of the agent, for drivers that run images."
  type        = string
  default     = ""
}

variable "config" {
  description = "Additional configuration of the agent. docs/reference/configuration.md lists the keys."
  type        = string
  default     = ""
}

variable "cpu" {
  description = "MHz per agent."
  type        = number
  default     = 200
}

variable "memory" {
  description = "MB per agent. 512 is enough for 1,000 nodes, 1024 for 10,000."
  type        = number
  default     = 512
}

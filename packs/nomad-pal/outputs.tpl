Agents of nomad-pal: [[ var "count" . ]]. One agent is active, the others stand by.

If Nomad has ACLs, the job's identity needs the agent's policy:

  nomad acl policy apply -namespace [[ var "namespace" . | default "default" ]] -job [[ var "job_name" . ]] nomad-pal nomad-pal.policy.hcl

Then check the result:

  nomad-pal doctor
  nomad-pal status

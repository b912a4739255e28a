"""What is installed beside the project's own code: under which licences, and with which known vulnerabilities."""

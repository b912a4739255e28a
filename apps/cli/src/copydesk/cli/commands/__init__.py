"""What each sub-command does; imported only when it is called, so that `copydesk --help` is instant."""

"""`copydesk capacity`: what is measured, and how the outcome is shown."""

"""send_email: send a message by SMTP, SendGrid or Mailgun."""

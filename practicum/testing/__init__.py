"""What tests share with users: a simulated server and filled stores."""

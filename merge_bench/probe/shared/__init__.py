"""What network measurements share: how one is declared, its campaign, its rows, and where its ends are placed."""

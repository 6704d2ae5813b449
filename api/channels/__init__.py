"""Where an owner's triggers are delivered."""

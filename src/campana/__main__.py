from campana.cli import main

main()

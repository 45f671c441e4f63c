"""Do networks that are trained with detaug's batches segment as well as with nnU-Net's own?"""
